"""What Keras has and Verax does not import, and why. A test holds this list against Keras: a layer
that is in no table is here."""

MASK = "masks are not supported"
CODE = "it holds code of one's own, which is never run"
TEXT = "it looks words up or cuts text"
PART = "it is no layer of a network by itself"
BOXES = "it works on labels or boxes beside the picture"
LATER = "nothing speaks against it: it has not been asked for"

REFUSED: dict[str, str] = {
    **dict.fromkeys(("Masking",), MASK),
    **dict.fromkeys(
        ("FlaxLayer", "JaxLayer", "Lambda", "TFSMLayer", "TorchModuleWrapper"), CODE
    ),
    **dict.fromkeys(
        ("CategoryEncoding", "Discretization", "HashedCrossing", "Hashing", "IntegerLookup",
         "StringLookup", "TextVectorization"), TEXT,
    ),
    **dict.fromkeys(
        ("GRUCell", "InputSpec", "LSTMCell", "Layer", "Pipeline", "SimpleRNNCell",
         "StackedRNNCells", "Wrapper"), PART,
    ),
    "MaxNumBoundingBoxes": BOXES,
    **dict.fromkeys(
        ("AutoContrast", "ContrastLimitedAdaptiveHistogramEqualization", "ConvLSTM1D",
         "ConvLSTM2D", "ConvLSTM3D", "Equalization", "MelSpectrogram", "RandomCrop",
         "ReversibleEmbedding", "STFTSpectrogram", "Solarization"), LATER,
    ),
}  # fmt: skip
"""Public classes of `keras.layers`, each with the reason."""
