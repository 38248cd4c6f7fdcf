"""What has never run on the devices that it is for, or serves what upstream gave up."""
