"""Every answer as a function. Written by tools.generate_docs."""

from analysis.answers.audit import audit
from analysis.answers.batching import batching
from analysis.answers.clients import clients
from analysis.answers.delay import delay
from analysis.answers.duplicates import duplicates
from analysis.answers.errors import errors
from analysis.answers.fetches import fetches
from analysis.answers.groups import groups
from analysis.answers.lag import lag
from analysis.answers.latency import latency
from analysis.answers.leadership import leadership
from analysis.answers.network import network
from analysis.answers.producers import producers
from analysis.answers.quality import quality
from analysis.answers.replication import replication
from analysis.answers.security import security
from analysis.answers.skew import skew
from analysis.answers.stuck import stuck
from analysis.answers.throttle import throttle
from analysis.answers.topology import topology
from analysis.answers.unanswered import unanswered
from analysis.answers.versions import versions
from analysis.answers.zones import zones

__all__ = [
    "audit", "batching", "clients", "delay", "duplicates", "errors", "fetches", "groups", "lag",
    "latency", "leadership", "network", "producers", "quality", "replication", "security", "skew",
    "stuck", "throttle", "topology", "unanswered", "versions", "zones",
]  # fmt: skip
