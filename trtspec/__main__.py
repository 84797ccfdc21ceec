"""python -m trtspec"""

from trtspec.cli import main

if __name__ == "__main__":
    main()
