"""The pages of the list, one after the other."""

import requests


def walk(url):
    """The records of each page."""
    cursor = None
    with requests.Session() as session:
        while True:
            params = {"limit": 100} if cursor is None else {"limit": 100, "cursor": cursor}
            response = session.get(f"{url}/v1/deals", params=params, timeout=30)
            response.raise_for_status()
            page = response.json()
            yield page["data"]
            cursor = page["next_cursor"]
            if cursor is None:
                return
