"""The command `fab`, which set-up copies to .venv/bin: this project's where one stands in a checkout, else Fabric's."""

import sys
from pathlib import Path


def main() -> None:
    """Run the program. Ctrl-C while it is imported ends it as at any later time."""
    try:
        folders = (Path.cwd(), *Path.cwd().parents)
        checkout = next((folder for folder in folders if (folder / "cluster" / "cli" / "program.py").is_file()), None)
        if checkout is None:
            from fabric.main import make_program
        else:
            sys.path.insert(0, str(checkout))  # The active virtual environment may be another checkout's.
            from cluster.cli.program import make_program
        make_program().run()
    except KeyboardInterrupt:
        print("\ninterrupted", file=sys.stderr)
        sys.exit(130)


if __name__ == "__main__":
    main()
