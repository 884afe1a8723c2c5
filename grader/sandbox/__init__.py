"""A submission behind a wall.

- `remote`: `Sandbox`, `RemoteSubmission`: what the judge uses;
- `box`: bubblewrap around a warmed parent; `landlock`, `syscalls`, `limits`: what a forked process gives up;
- `player`: what runs inside;
- `peer`: objects that are called across the wall; `wire`: frames and values.

Nothing here knows what a right answer is.
"""
