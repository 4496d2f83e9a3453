"""What is decided about a graph before it is lowered: which nodes run as one, which values stay in
the blocked layout. A decision is named and counted like a rewrite of a pass, and changes no bit."""
