"""The commands `fab` and `deepcdk`, which set-up copies to .venv/bin.

In a checkout both run that checkout's tasks. Elsewhere `fab` is Fabric's own, and `deepcdk` runs the tasks of the
checkout that .venv belongs to.
"""

import sys
from pathlib import Path


def main() -> None:
    """Run the tasks of the checkout that contains the current directory.

    Outside of a checkout, `deepcdk` runs the tasks of the checkout to which its virtual environment belongs, and `fab`
    is Fabric's own program. Ctrl-C during the imports exits with status 130, as it does later.
    """
    try:
        try:
            folders = (Path.cwd(), *Path.cwd().parents)
        except FileNotFoundError:
            sys.exit("deepcdk: the current directory was deleted\n  do: change to another directory with cd")
        checkout = next((folder for folder in folders if (folder / "cluster" / "cli" / "program.py").is_file()), None)
        if checkout is None and Path(sys.argv[0]).name != "deepcdk":
            from fabric.main import make_program

            make_program().run()
            return
        if checkout is not None:
            sys.path.insert(0, str(checkout))  # The active virtual environment may be another checkout's.
        from deepcdk.__main__ import main as run_tasks
    except KeyboardInterrupt:
        print("\ninterrupted", file=sys.stderr)
        sys.exit(130)
    run_tasks()


if __name__ == "__main__":
    main()
