"""Documents of strangers, damaged in every way: each is read or refused, typed, soon and small."""
