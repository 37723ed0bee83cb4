"""`python -m ringlet`."""

from ringlet.cli import main

if __name__ == "__main__":
    main()
