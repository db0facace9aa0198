"""Other people's conventions: problem folders, file names and result files."""
