"""`coupler workflows`: the files, listed, shown, checked, drawn and begun."""
