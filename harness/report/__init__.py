"""Reports to what a person or a program reads. Pure functions of records; torch is not imported."""
