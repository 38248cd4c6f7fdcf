"""The artifact cache as packager uses it: settings, errors, operations, transfer."""
