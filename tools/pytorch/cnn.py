"""ata's built-in network in PyTorch, for the other scripts of this folder."""

from torch import nn
from torch.nn import functional as F

CLASSES = 100


class Cnn(nn.Module):
    """`--model cnn:widths=C1/C2/C3/H`, with the same names of parameters."""

    def __init__(self, widths=(16, 32, 64, 120)):
        super().__init__()
        c1, c2, c3, hidden = widths
        self.conv1 = nn.Conv2d(3, c1, 3, padding=1)
        self.conv2 = nn.Conv2d(c1, c2, 3, padding=1)
        self.conv3 = nn.Conv2d(c2, c3, 3, padding=1)
        self.hidden = nn.Linear(c3 * 4 * 4, hidden)
        self.output = nn.Linear(hidden, CLASSES)

    def forward(self, x):
        for convolution in (self.conv1, self.conv2, self.conv3):
            x = F.max_pool2d(F.relu(convolution(x)), 2)
        return self.output(F.relu(self.hidden(x.flatten(1))))
