"""Size of a model on a device, and its split over devices."""
