"""What tools put out: kept whole in files, and shortened for the model."""
