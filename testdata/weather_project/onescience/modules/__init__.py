from .attention.oneattention import OneAttention
from .embedding.oneembedding import OneEmbedding
from .fuser.onefuser import OneFuser
from .mlp.onemlp import OneMlp
from .recovery.onerecovery import OneRecovery
from .transformer.onetransformer import OneTransformer
