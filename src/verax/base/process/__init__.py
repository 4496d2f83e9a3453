"""How this process and others run: children with a guard, forks, threads beside, interruptions."""
