"""From a lane's rows to files, tables and views."""
