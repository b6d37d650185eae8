"""English names of WordNet ids: the classes of Imagenette and of every second class of Tiny-ImageNet."""

from __future__ import annotations

from collections.abc import Iterable

_TABLE = """
n01440764 tench; n01443537 goldfish; n01641577 bullfrog; n01698640 American alligator; n01768244 trilobite;
n01774384 black widow; n01784675 centipede; n01882714 koala; n01917289 brain coral; n01945685 slug;
n01983481 American lobster; n02002724 black stork; n02058221 albatross; n02085620 Chihuahua;
n02099601 golden retriever; n02102040 English springer; n02106662 German shepherd; n02123045 tabby;
n02124075 Egyptian cat; n02129165 lion; n02165456 ladybug; n02206856 bee; n02231487 walking stick;
n02236044 mantis; n02279972 monarch; n02321529 sea cucumber; n02395406 hog; n02410509 bison; n02423022 gazelle;
n02480495 orangutan; n02486410 baboon; n02509815 lesser panda; n02669723 academic gown; n02730930 apron;
n02788148 bannister; n02793495 barn; n02802426 basketball; n02814533 beach wagon; n02815834 beaker;
n02837789 bikini; n02843684 birdhouse; n02892201 brass; n02909870 bucket; n02927161 butcher shop; n02950826 cannon;
n02977058 cash machine; n02979186 cassette player; n02999410 chain; n03000684 chain saw;
n03026506 Christmas stocking; n03028079 church; n03085013 computer keyboard; n03100240 convertible; n03160309 dam;
n03201208 dining table; n03255030 dumbbell; n03388043 fountain; n03394916 French horn; n03400231 frying pan;
n03417042 garbage truck; n03424325 gasmask; n03425413 gas pump; n03445777 golf ball; n03447447 gondola;
n03584254 iPod; n03617480 kimono; n03649909 lawn mower; n03670208 limousine; n03733131 maypole;
n03770439 miniskirt; n03804744 nail; n03837869 obelisk; n03854065 organ; n03888257 parachute; n03902125 pay-phone;
n03937543 pill bottle; n03976657 pole; n03980874 poncho; n03992509 potter's wheel; n04023962 punching bag;
n04070727 refrigerator; n04099969 rocking chair; n04133789 sandal; n04149813 scoreboard; n04251144 snorkel;
n04259630 sombrero; n04275548 spider web; n04311004 steel arch bridge; n04356056 sunglasses;
n04371430 swimming trunks; n04398044 teapot; n04417672 thatch; n04465501 tractor; n04487081 trolleybus;
n04507155 umbrella; n04532670 viaduct; n04560804 water jug; n04596742 wok; n06596364 comic book;
n07583066 guacamole; n07615774 ice lolly; n07711569 mashed potato; n07720875 bell pepper; n07747607 orange;
n07753592 banana; n07871810 meat loaf; n07875152 potpie; n09193705 alp; n09256479 coral reef; n09428293 seashore
"""

WORDNET: dict[str, str] = dict(tuple(entry.strip().split(" ", 1)) for entry in _TABLE.split(";"))  # type: ignore[misc]


def readable(classes: Iterable[str]) -> tuple[str, ...]:
    """Replaces the WordNet ids among class names by English names.

    >>> readable(["n01440764", "my cat"])
    ('tench', 'my cat')
    """
    return tuple(WORDNET.get(name, name) for name in classes)
