"""What has never run on the devices it is for, or serves what upstream gave up."""
