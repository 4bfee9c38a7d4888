"""Django's ORM as it is, with PyMySQL: an app is migrated, written and queried.

Django keeps its settings for the life of a process, so the app runs in one of its own.
"""

from __future__ import annotations

import subprocess
import sys
import textwrap
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from tests.serve.mysql.conftest import Running

MODELS = """
from django.db import models

class Customer(models.Model):
    name = models.CharField(max_length=40)
    active = models.BooleanField(default=True)
    joined = models.DateTimeField(null=True)

class Sale(models.Model):
    customer = models.ForeignKey(Customer, on_delete=models.CASCADE, related_name="sales")
    item = models.CharField(max_length=20, db_index=True)
    price = models.DecimalField(max_digits=10, decimal_places=2)
    count = models.PositiveIntegerField(default=1)
    note = models.TextField(blank=True)

class Revenue(models.Model):  # a view
    name = models.CharField(max_length=40, primary_key=True)
    total = models.DecimalField(max_digits=20, decimal_places=2)

    class Meta:
        managed = False
        db_table = "revenue"
"""

PROGRAM = """
import datetime as dt
import sys
from decimal import Decimal

import pymysql
pymysql.install_as_MySQLdb()

import django
from django.conf import settings
settings.configure(
    INSTALLED_APPS=["shop"],
    USE_TZ=True,
    DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
    DATABASES={"default": {
        "ENGINE": "django.db.backends.mysql", "NAME": "viewkeep", "USER": "any",
        "HOST": "127.0.0.1", "PORT": sys.argv[1],
    }},
)
django.setup()

from django.core.management import call_command
from django.db import IntegrityError, connection, transaction
from django.db.models import Avg, Count, F, Q, Sum
from shop.models import Customer, Revenue, Sale

call_command("makemigrations", "shop", verbosity=0)
call_command("migrate", verbosity=0)
call_command("migrate", verbosity=0)  # nothing is left to do
with connection.cursor() as cursor:
    cursor.execute(
        "CREATE VIEW revenue AS SELECT c.name, SUM(s.price * s.count) AS total "
        "FROM shop_customer c JOIN shop_sale s ON s.customer_id = c.id GROUP BY c.name"
    )

when = dt.datetime(2024, 5, 6, 7, 8, 9, 123456, dt.UTC)
ann = Customer.objects.create(name="Ann", joined=when)
bob = Customer.objects.create(name="Bob", active=False)
assert ann.pk and bob.pk and ann.pk != bob.pk
with transaction.atomic():
    Sale.objects.create(customer=ann, item="pen", price=Decimal("1.50"), count=4)
    Sale.objects.bulk_create(
        [Sale(customer=c, item="ink", price=Decimal("7.25"), note="it's") for c in (ann, bob)]
    )

assert Customer.objects.get(pk=ann.pk).joined == when
assert list(Customer.objects.filter(active=True)) == [ann]
assert Customer.objects.filter(name__startswith="B", joined__isnull=True).count() == 1
assert Customer.objects.filter(joined__gte=when - dt.timedelta(days=1)).exists()
items = Sale.objects.filter(customer__name="Ann").values_list("item", flat=True)
assert set(items) == {"pen", "ink"}
assert Sale.objects.filter(Q(item="pen") | Q(price__gt=7)).count() == 3
related = Sale.objects.select_related("customer").order_by("customer__name", "item")
assert [sale.customer.name for sale in related] == ["Ann", "Ann", "Bob"]
counted = Customer.objects.annotate(n=Count("sales"), spent=Sum("sales__price")).order_by("name")
assert [(c.name, c.active, c.n, c.spent) for c in counted] == [
    ("Ann", True, 2, Decimal("8.75")), ("Bob", False, 1, Decimal("7.25"))
]
by_item = Sale.objects.values("item").annotate(n=Count("id"), mean=Avg("count")).order_by("item")
assert list(by_item) == [{"item": "ink", "n": 2, "mean": 1.0}, {"item": "pen", "n": 1, "mean": 4.0}]
assert Sale.objects.aggregate(total=Sum("count"))["total"] == 6
assert [(r.name, r.total) for r in Revenue.objects.order_by("name")] == [
    ("Ann", Decimal("13.25")), ("Bob", Decimal("7.25"))
]

pen = Sale.objects.get(item="pen")
pen.count = 2
pen.save()
Sale.objects.filter(item="ink").update(price=F("price") + 1, note="")
assert Revenue.objects.get(pk="Ann").total == Decimal("11.25")
assert Customer.objects.get_or_create(name="Ann")[1] is False
made, new = Customer.objects.update_or_create(name="Cid", defaults={"active": False})
assert new and made.pk
try:
    with transaction.atomic():
        Customer.objects.create(pk=ann.pk, name="twice")
    raise AssertionError("a key was taken twice")
except IntegrityError:
    pass
assert bob.delete()[0] == 2
assert list(Revenue.objects.values_list("name", flat=True)) == ["Ann"]
assert {c.name for c in Customer.objects.raw("SELECT * FROM shop_customer")} == {"Ann", "Cid"}

with connection.cursor() as cursor:
    tables = {t.name: t.type for t in connection.introspection.get_table_list(cursor)}
    assert tables["shop_sale"] == "t" and tables["revenue"] == "v", tables
    fields = connection.introspection.get_table_description(cursor, "shop_sale")
    assert [f.name for f in fields] == ["id", "item", "price", "count", "note", "customer_id"]
    keys = connection.introspection.get_constraints(cursor, "shop_sale")
    assert keys["PRIMARY"]["columns"] == ["id"], keys
call_command("inspectdb", "shop_sale", stdout=sys.stdout)
connection.close()
"""


def test_an_app(running: Running, tmp_path: Path) -> None:
    app = tmp_path / "shop"
    app.mkdir()
    (app / "__init__.py").touch()
    (app / "models.py").write_text(MODELS)
    program = tmp_path / "program.py"
    program.write_text(textwrap.dedent(PROGRAM))
    done = subprocess.run(
        [sys.executable, str(program), str(running.port)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert "class ShopSale(models.Model):" in done.stdout
    assert "price = models.DecimalField(max_digits=10, decimal_places=2" in done.stdout
