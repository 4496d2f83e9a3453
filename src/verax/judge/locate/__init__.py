"""Where a mistake is: by cutting the network, by its optimisations, its runs, wider views."""
