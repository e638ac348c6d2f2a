"""The only user of kubernetes_asyncio: credentials, requests, watches and the translation of every failure.

Objects stay plain JSON at this edge; errors are those of `liken.model.api`. `client.Kube` is the API server,
`paths` its addresses, `events.EventRecorder` says things there as Events, `lazy` keeps the import small.
"""
