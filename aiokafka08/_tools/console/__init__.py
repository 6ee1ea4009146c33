"""The console's pages: what is known of a cluster, for people in a browser and as JSON.

`application` is the ASGI application, which `guard` protects and `pages` serves. `watch` takes the
samples, in the background, and `cluster_view` makes the rows of the pages of each one, once,
whatever the number of viewers. `charts` draws values over time,
`query_table` sorts, filters and pages rows, `message_search` and `message_text` read and show
messages. `changes` keeps the changes that wait for their confirmation and carries them out,
`change_drafts` says what each does, `change_pages` has their forms. `page_frame` is what all pages
share. `server` runs the application for the command `console`, `demo` a cluster to look at.

Invariants: no route changes anything unless it is allowed, and reading creates no topic, group or
commit. Values from a cluster may be hostile: templates escape everything, and no page has an inline
script or style.
"""
