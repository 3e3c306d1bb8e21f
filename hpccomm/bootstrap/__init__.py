"""Bootstrap: from a launcher's processes to torch process groups."""
