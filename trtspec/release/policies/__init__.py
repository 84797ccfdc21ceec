"""Which K pays where, from measurements, and the files that tell a server so."""
