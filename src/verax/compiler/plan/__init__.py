"""What is decided about a graph: which nodes run as one kernel, by which alternative, and in which
layout values lie. A decision is named and counted like a rewrite of a pass, and changes no bit."""
