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

FIRST = """
from django.db import migrations, models

class Migration(migrations.Migration):
    initial = True
    operations = [
        migrations.CreateModel("Author", [
            ("id", models.AutoField(primary_key=True)),
            ("name", models.CharField(max_length=10)),
        ]),
        migrations.CreateModel("Post", [
            ("id", models.BigAutoField(primary_key=True)),
            ("title", models.CharField(max_length=20)),
            ("hits", models.IntegerField(default=0)),
            ("draft", models.TextField(default="")),
            ("rank", models.SmallIntegerField(null=True)),
        ]),
    ]
"""

SECOND = """
import django.db.models.deletion
from django.db import migrations, models
from django.utils import timezone

def fill(apps, schema_editor):
    Post, Author = apps.get_model("blog", "Post"), apps.get_model("blog", "Author")
    Post.objects.update(author=Author.objects.get(name="Ann"))

class Migration(migrations.Migration):
    dependencies = [("blog", "0001_initial")]
    operations = [
        migrations.AddField("Post", "likes", models.PositiveIntegerField(default=3)),
        migrations.AddField("Post", "note", models.TextField(default="none")),
        migrations.AddField("Post", "tags", models.JSONField(default=list)),
        migrations.AddField("Post", "price", models.DecimalField(
            max_digits=8, decimal_places=2, default="1.50")),
        migrations.AddField("Post", "made", models.DateTimeField(default=timezone.now)),
        migrations.AddField("Post", "public", models.BooleanField(default=True)),
        migrations.AddField("Post", "author", models.ForeignKey(
            "blog.Author", null=True, on_delete=django.db.models.deletion.CASCADE)),
        migrations.RunPython(fill),
        migrations.RenameField("Post", "title", "headline"),
        migrations.AlterField("Post", "headline", models.CharField(max_length=200)),
        migrations.AlterField("Post", "hits", models.BigIntegerField(default=0)),
        migrations.AlterField("Post", "rank", models.SmallIntegerField(default=9)),
        migrations.RemoveField("Post", "draft"),
        migrations.AddIndex("Post", models.Index(fields=["headline"], name="by_headline")),
        migrations.RenameIndex("Post", new_name="by_head", old_name="by_headline"),
        migrations.RemoveIndex("Post", "by_head"),
        migrations.RenameModel("Author", "Writer"),
        migrations.AlterModelTable("Post", "articles"),
        migrations.AlterField("Post", "author", models.ForeignKey(
            "blog.Writer", on_delete=django.db.models.deletion.CASCADE, related_name="posts")),
    ]
"""

MIGRATED = """
import sys
from decimal import Decimal

import pymysql
pymysql.install_as_MySQLdb()

import django
from django.conf import settings
settings.configure(
    INSTALLED_APPS=[
        "blog", "django.contrib.admin", "django.contrib.auth", "django.contrib.contenttypes",
        "django.contrib.messages", "django.contrib.sessions",
    ],
    USE_TZ=True,
    SECRET_KEY="of a test",
    PASSWORD_HASHERS=["django.contrib.auth.hashers.MD5PasswordHasher"],
    DATABASES={"default": {
        "ENGINE": "django.db.backends.mysql", "NAME": "viewkeep", "USER": "any",
        "HOST": "127.0.0.1", "PORT": sys.argv[1],
        "OPTIONS": {"init_command": "SET viewkeep_constraints = 'ignore'"},
    }},
)
django.setup()

from django.contrib.auth import authenticate
from django.contrib.auth.models import Group, Permission, User
from django.contrib.contenttypes.models import ContentType
from django.contrib.sessions.backends.db import SessionStore
from django.core.management import call_command
from django.db import connection

call_command("migrate", "blog", "0001", verbosity=0)
with connection.cursor() as cursor:
    cursor.execute("INSERT INTO blog_author (name) VALUES ('Ann'), ('Bob')")
    cursor.execute(
        "INSERT INTO blog_post (title, hits, draft, `rank`) "
        "VALUES ('one', 5, 'x', NULL), ('two', 6, 'y', 2)"
    )
call_command("migrate", verbosity=0)
call_command("migrate", verbosity=0)  # nothing is left to do

from django.db.migrations.loader import MigrationLoader

state = MigrationLoader(connection).project_state().apps
Post, Writer = state.get_model("blog", "Post"), state.get_model("blog", "Writer")
one, two = Post.objects.order_by("id")
assert (one.headline, one.hits, one.rank, one.likes) == ("one", 5, 9, 3)
assert (one.note, one.tags, one.price, one.public) == ("none", [], Decimal("1.50"), True)
assert one.author.name == "Ann" and one.made is not None and two.rank == 2
new = Post.objects.create(
    headline="h" * 200, hits=2**40, author=Writer.objects.get(name="Bob"), tags=["a"]
)
assert Post.objects.get(pk=new.pk).hits == 2**40
assert Post.objects.filter(author__name="Ann").count() == 2

ann = User.objects.create_superuser("ann", "ann@example.org", "secret")
ann.first_name = "A" * 150
ann.save()
assert authenticate(username="ann", password="secret") == ann
editors = Group.objects.create(name="editors")
editors.permissions.add(*Permission.objects.filter(codename__startswith="add_"))
ann.groups.add(editors)
assert ann.groups.get().permissions.count() == ContentType.objects.count()
session = SessionStore()
session["seen"] = 3
session.save()
assert SessionStore(session.session_key)["seen"] == 3
connection.close()
"""


def run(program: str, folder: Path, port: int) -> str:
    """Run a program in a process of its own; what it prints."""
    file = folder / "program.py"
    file.write_text(textwrap.dedent(program))
    done = subprocess.run(
        [sys.executable, str(file), str(port)],
        capture_output=True,
        text=True,
        cwd=folder,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


def test_migrations(running: Running, tmp_path: Path) -> None:
    """Those of an app of our own, and the years of them that come with Django."""
    migrations = tmp_path / "blog" / "migrations"
    migrations.mkdir(parents=True)
    for folder in (tmp_path / "blog", migrations):
        (folder / "__init__.py").touch()
    (migrations / "0001_initial.py").write_text(FIRST)
    (migrations / "0002_changes.py").write_text(SECOND)
    run(MIGRATED, tmp_path, running.port)


def test_an_app(running: Running, tmp_path: Path) -> None:
    app = tmp_path / "shop"
    app.mkdir()
    (app / "__init__.py").touch()
    (app / "models.py").write_text(MODELS)
    printed = run(PROGRAM, tmp_path, running.port)
    assert "class ShopSale(models.Model):" in printed
    assert "price = models.DecimalField(max_digits=10, decimal_places=2" in printed
