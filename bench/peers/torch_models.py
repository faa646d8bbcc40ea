"""The networks that Echelon has too, the convolutional ones under the same parameter names: for the peers beside this file
and for tests/golden/make_golden.py."""
import torch.nn as nn
import torch.nn.functional as F

CLASSES = 10


def linear_stack(dim, depth):
    return nn.Sequential(*(layer for _ in range(depth) for layer in (nn.Linear(dim, dim), nn.ReLU())))


class LeNet(nn.Module):
    """[N,3,32,32] -> [N,10]: two 5x5 convolutions with pools, three linear layers."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 6, 5)
        self.conv2 = nn.Conv2d(6, 16, 5)
        self.fc1 = nn.Linear(400, 120)
        self.fc2 = nn.Linear(120, 84)
        self.fc3 = nn.Linear(84, CLASSES)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        x = F.relu(self.fc1(x.flatten(1)))
        return self.fc3(F.relu(self.fc2(x)))


class Block(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.shortcut = nn.Sequential()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x):
        h = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(h)) + self.shortcut(x))


class ResNet(nn.Module):
    """[N,3,32,32] -> [N,10]. Stage s has width * 2^s channels, and all but the first halve the image."""

    def __init__(self, width, stages, blocks):
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.stages, channels = stages, width
        for stage in range(stages):
            layers = []
            for block in range(blocks):
                layers.append(Block(channels, width << stage, 2 if stage and not block else 1))
                channels = width << stage
            setattr(self, f"layer{stage + 1}", nn.Sequential(*layers))
        self.linear = nn.Linear(channels, CLASSES)

    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(x)))
        for stage in range(self.stages):
            x = getattr(self, f"layer{stage + 1}")(x)
        return self.linear(F.avg_pool2d(x, x.shape[-1]).flatten(1))


MODELS = {"lenet": LeNet, "resnet18": lambda: ResNet(64, 4, 2), "resnet8": lambda: ResNet(16, 3, 1)}
