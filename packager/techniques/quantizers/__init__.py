"""Who quantizes: each module describes the work of one tool."""
