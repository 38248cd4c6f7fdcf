"""Speed, cost and ranking of plans, from data and measurements."""
