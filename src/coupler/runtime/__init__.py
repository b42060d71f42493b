"""Child processes and their groups, files, directories, logs, threads and optional packages."""
