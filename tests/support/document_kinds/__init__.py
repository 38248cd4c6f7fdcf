"""The kinds of documents that packager keeps on disk, or sends to another version of itself.

`KINDS` is the whole list.  `scripts/freeze-schemas` writes schema and example of each new version.
"""

from tests.support.document_kinds.databases import DATABASES
from tests.support.document_kinds.handmade import HANDMADE
from tests.support.document_kinds.kinds import DocumentKind
from tests.support.document_kinds.models import MODELLED

KINDS: tuple[DocumentKind, ...] = (*MODELLED, *DATABASES, *HANDMADE)
