"""Where and in which pieces the work is done: meshes, the memory plan, chunks."""
