"""A bucket in Moto's S3 and a container in Azurite, and what pandas reads from them.

`serve <port of Azurite>` prints how to reach both and keeps S3 up until its input ends. `read <that> <folder> <to>` prints what pandas
reads from a folder of each, and copies the files below `to`.
"""

import json
import os
import sys
from datetime import datetime, timedelta, timezone

# Moto's: from the fifth action on, who asks, with which signature, and what they may do is checked.
os.environ["INITIAL_NO_AUTH_ACTION_COUNT"] = "4"

import boto3
import pandas
from azure.storage.blob import ContainerClient, ContainerSasPermissions, generate_container_sas
from moto.server import ThreadedMotoServer
from pyarrow.fs import AzureFileSystem, S3FileSystem, copy_files

# Azurite's, in its documentation.
ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
BUCKET = "lender-batches"


def serve(azurite_port):
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    endpoint = f"http://127.0.0.1:{server.get_host_and_port()[1]}"
    nobody = {"endpoint_url": endpoint, "region_name": "eu-west-1", "aws_access_key_id": "x", "aws_secret_access_key": "x"}
    iam = boto3.client("iam", **nobody)
    iam.create_user(UserName="loantape")
    key = iam.create_access_key(UserName="loantape")["AccessKey"]
    allowed = {"Effect": "Allow", "Action": "s3:*", "Resource": "*"}
    iam.put_user_policy(
        UserName="loantape", PolicyName="p", PolicyDocument=json.dumps({"Version": "2012-10-17", "Statement": allowed})
    )
    boto3.client("s3", **nobody).create_bucket(
        Bucket=BUCKET, CreateBucketConfiguration={"LocationConstraint": "eu-west-1"}
    )
    url = f"http://127.0.0.1:{azurite_port}/{ACCOUNT}/{BUCKET}"
    ContainerClient.from_container_url(url, credential=KEY).create_container()
    sas = generate_container_sas(
        ACCOUNT,
        BUCKET,
        account_key=KEY,
        permission=ContainerSasPermissions(create=True, write=True),
        expiry=datetime.now(timezone.utc) + timedelta(hours=1),
    )
    print(json.dumps({"endpoint": endpoint, "id": key["AccessKeyId"], "secret": key["SecretAccessKey"], "url": url, "sas": sas}))
    sys.stdout.flush()
    sys.stdin.read()


def read(told, folder, to):
    told = json.loads(told)
    at = told["url"].split("/")[2]
    s3 = S3FileSystem(
        access_key=told["id"], secret_key=told["secret"], region="eu-west-1", endpoint_override=told["endpoint"]
    )
    azure = AzureFileSystem(
        account_name=ACCOUNT,
        account_key=KEY,
        blob_storage_authority=at,
        blob_storage_scheme="http",
        dfs_storage_authority=at,
        dfs_storage_scheme="http",
    )
    stores = {"s3": s3, "azure": azure}
    print(json.dumps({kind: look(store, f"{BUCKET}/{folder}", f"{to}/{kind}") for kind, store in stores.items()}))


def look(store, folder, to):
    os.makedirs(to, exist_ok=True)
    copy_files(folder, to, source_filesystem=store)
    if not folder.startswith(f"{BUCKET}/parquet/"):
        return None
    deals = pandas.read_parquet(f"{folder}/core.deal", filesystem=store)
    months = deals.groupby(deals["month"].astype(str))["loan_amount"].sum()
    return {month: str(amount) for month, amount in months.items()}


{"serve": serve, "read": read}[sys.argv[1]](*sys.argv[2:])
