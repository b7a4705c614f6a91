# SPDX-License-Identifier: Apache-2.0
"""aws-cli: the README's lines, then files up and down, multipart, sync, presigned, versions."""
import json
import os
import random
import urllib.request

from steps import ACCESS, ENDPOINT, REGION, SECRET, TOP, main, paste, same, shell, step, unique

os.environ |= {"AWS_ACCESS_KEY_ID": ACCESS, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_DEFAULT_REGION": REGION, "AWS_ENDPOINT_URL": ENDPOINT}
BUCKET = unique("cli")


@step
def pasted_lines():
    out = shell(paste("aws-cli.sh"), cwd=TOP)
    same(out.strip().split()[-1], "readme.txt", "the listing's key")
    shell("aws s3 rb --force s3://photos")


@step
def up_and_down():
    shell(f"aws s3 mb s3://{BUCKET}")
    with open("big", "wb") as f:
        f.write(random.Random(1).randbytes(20_000_003))
    shell(f"aws s3 cp big s3://{BUCKET}/in/big && aws s3 cp s3://{BUCKET}/in/big back && cmp big back")
    head = json.loads(shell(f"aws s3api head-object --bucket {BUCKET} --key in/big"))
    same(head["ContentLength"], 20_000_003, "size")
    same(head["ETag"].endswith('-3"'), True, f"three parts: {head['ETag']}")
    shell(f"aws s3api get-object --bucket {BUCKET} --key in/big --range bytes=8388600-8388700 part && cmp part <(tail -c +8388601 big | head -c 101)")


@step
def sync_and_list():
    os.makedirs("tree/a/b", exist_ok=True)
    for i in range(30):
        with open(f"tree/a/b/file {i} +%&.txt", "w", encoding="utf-8") as f:
            f.write(str(i))
    shell(f"aws s3 sync tree s3://{BUCKET}/tree && aws s3 sync s3://{BUCKET}/tree copy && diff -r tree copy")
    same(shell(f"aws s3 sync --size-only tree s3://{BUCKET}/tree"), "", "a second sync has nothing to do")
    doc = json.loads(shell(f"aws s3api list-objects-v2 --bucket {BUCKET} --prefix tree/ --delimiter / --page-size 7"))
    same([p["Prefix"] for p in doc["CommonPrefixes"]], ["tree/a/"], "common prefixes")


@step
def presigned():
    url = shell(f"aws s3 presign s3://{BUCKET}/in/big").strip()
    with urllib.request.urlopen(url, timeout=60) as r, open("big", "rb") as f:
        same(r.read() == f.read(), True, "the bytes by a presigned URL")


@step
def versions():
    b = unique("cliv")
    shell(f"aws s3 mb s3://{b} && aws s3api put-bucket-versioning --bucket {b} --versioning-configuration Status=Enabled")
    shell(f"echo one > v && aws s3 cp v s3://{b}/k && echo two > v && aws s3 cp v s3://{b}/k && aws s3 rm s3://{b}/k")
    doc = json.loads(shell(f"aws s3api list-object-versions --bucket {b}"))
    same((len(doc["Versions"]), len(doc["DeleteMarkers"])), (2, 1), "versions and markers")
    first = doc["Versions"][-1]["VersionId"]
    shell(f"aws s3api get-object --bucket {b} --key k --version-id '{first}' old")
    with open("old", encoding="utf-8") as f:
        same(f.read(), "one\n", "the first version")


@step
def refusals():
    for script, code in ((f"aws s3api head-object --bucket {BUCKET} --key absent", "404"), (f"aws s3api get-object --bucket {BUCKET} --key absent x", "NoSuchKey"),
                         (f"aws s3api list-objects-v2 --bucket {unique('absent')}", "NoSuchBucket"),
                         (f"AWS_SECRET_ACCESS_KEY=wrong aws s3api list-objects-v2 --bucket {BUCKET}", "SignatureDoesNotMatch")):
        out = shell(f"if {script} 2>err >/dev/null; then echo none; else cat err; fi")
        same(code in out, True, f"{code} in {out!r}")


main()
