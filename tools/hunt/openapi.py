"""Compares the OpenAPI documents of kube-apiserver and Pintle, version 2 and 3, and prints where they differ, by path.

usage: openapi.py   (servers: REAL_PORT, OUR_PORT, token TOKEN, as for hunt.py; DEPTH: lines per document, 20 unless told)
"""
from collections import Counter
import os, re, sys
from hunt import ours, real, short


def walk(one, other, path, found):
    """Adds (path, theirs, ours) for each leaf or member that differs."""
    if isinstance(one, dict) and isinstance(other, dict):
        for key in sorted(set(one) | set(other)):
            walk(one.get(key, ABSENT), other.get(key, ABSENT), path + (key,), found)
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for at, (x, y) in enumerate(zip(one, other)):
            walk(x, y, path + (at,), found)
    elif one != other:
        found.append((path, one, other))


ABSENT = '(absent)'


def shape(path):
    """A path without its names, to count what differs in the same way."""
    return '/'.join('*' if isinstance(step, int) or '/' in step or '.' in step else step for step in path[-3:])


def main():
    width = int(os.environ.get('DEPTH', '20'))
    # OpenAPI says where each document is, with the hash of its content.
    roots = [server.call('GET', '/openapi/v3')[1]['paths'] for server in (real, ours)]
    total, documents = 0, ['/openapi/v2'] + ['/openapi/v3/' + name for name in sorted(set(roots[0]) | set(roots[1]))]
    for document in documents:
        name = document.removeprefix('/openapi/v3/')
        if document != '/openapi/v2' and not (name in roots[0] and name in roots[1]):
            print(f'## {document}: only {"ours" if name in roots[1] else "theirs"}')
            total += 1
            continue
        answers = [server.call('GET', document)[1] for server in (real, ours)]
        for answer in answers:
            # Versions of the two programs.
            answer.get('info', {}).pop('version', None)
        found = []
        walk(*answers, (), found)
        total += len(found)
        hashes = [re.search('hash=([0-9A-F]+)', root[name]['serverRelativeURL'])[1] if name in root else '' for root in roots]
        if found or hashes[0] != hashes[1]:
            print(f'## {document}: {len(found)} differences, hashes {"equal" if hashes[0] == hashes[1] else "differ"}')
            for kind, count in Counter(shape(path) for path, _, _ in found).most_common(8):
                print(f'   {count} x {kind}')
            for path, one, other in found[:width]:
                print(f'   {"/".join(map(str, path))}: {short(one)} | {short(other)}')
    print(f'documents {len(documents)} differences {total}')
    sys.exit(1 if total else 0)


if __name__ == '__main__':
    main()
