"""The model: every layer with its forward and its hand-written backward, and the proof that they agree."""

from scratchformer.nn.attention import CrossAttention, Mask, ScaledDotProductAttention, SelfAttention
from scratchformer.nn.dropout import DropoutKey
from scratchformer.nn.language_model import LanguageModel
from scratchformer.nn.layers import (
    AddNorm,
    Embedding,
    FeedForward,
    LayerNorm,
    LearnedPositions,
    Linear,
    PositionalEncoding,
    Unembedding,
)
from scratchformer.nn.loss import cross_entropy
from scratchformer.nn.model import Model
from scratchformer.nn.ops import ops_of, using
from scratchformer.nn.optim import Adam, noam
from scratchformer.nn.parameter import Layer, Parameter
from scratchformer.nn.residual import PostNorm, PreNorm
from scratchformer.nn.text_encoder import TextEncoder
from scratchformer.nn.transformer import Decoder, DecoderLayer, Encoder, EncoderLayer, Transformer
from scratchformer.nn.vision import VisionTransformer
