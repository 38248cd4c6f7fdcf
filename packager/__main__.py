"""`python -m packager`."""

from packager.cli.app import main

if __name__ == "__main__":
    main()
