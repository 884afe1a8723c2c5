"""A submission behind a wall.

- `remote`: `Sandbox`, `RemoteSubmission`: what the judge uses;
- `box`: bubblewrap around a warmed parent; `landlock`, `syscalls`, `limits`: what a forked process gives up;
- `parent`: what runs inside and forks; `player`: the end of the wire in a forked process;
- `peer`: either end of the wire; `objects`, `modules`, `graphs`, `memory`, `arguments`: what the two ends keep for each
  other; `standins`: what an object looks like from the other side; `wire`: frames and values.

Nothing here knows what a right answer is.
"""
