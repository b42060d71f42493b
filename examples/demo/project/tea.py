"""A tea timer for the terminal: python tea.py green"""

import sys
import time

MINUTES = {"green": 2, "black": 4, "herbal": 8}


def brew(tea: str) -> None:
    minutes = MINUTES[tea]
    print(f"Your {tea} tea needs {minutes} minutes.")
    time.sleep(minutes * 60)
    print("It is ready. Enjoy!")


if __name__ == "__main__":
    brew(sys.argv[1])
