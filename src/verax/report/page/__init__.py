"""Records as one HTML page that needs nothing else: no network, no server, no fonts.

`sections` turns records into plain data, `views` and `layout` draw networks, `build` fills the
templates. Records come from strangers: every text is escaped, the policy of the page allows only
its own style and script, by their hashes, and pictures made here.
"""
