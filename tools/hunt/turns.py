"""Lets kube-apiserver and Pintle take turns over one etcd: objects of every kind, with almost every field between them, are created by
one server, changed by the other and back, and deleted by the other. Prints where the two do not agree.

usage: turns.py [kind ...]   (servers: REAL_PORT, OUR_PORT, token TOKEN, as for hunt.py; both with the same --etcd-prefix)

An object has to read the same from both. An update that changes nothing must not be a write: kube-apiserver compares what it would
store with the bytes that are stored, so that a write shows bytes of Pintle's that are not kube-apiserver's.
"""
import copy, os, sys, time
import hunt
from hunt import bases, diff, ours, real, short, where


class Disagreement(Exception):
    pass


def call(server, method, path, body=None, expected=(200, 201)):
    code, answer, _ = server.call(method, path, body)
    if code not in expected:
        raise Disagreement(f'{method} {path} by {NAMES[server]}: {code} {answer.get("message", "")[:300]}')
    return answer


def agree(path, one, written):
    """Both servers read what was written."""
    for server in (real, ours):
        found = call(server, 'GET', path)
        if found != written:
            raise Disagreement(f'{NAMES[server]} reads what {NAMES[one]} wrote: ' + '; '.join(diff(written, found))[:600])


def unchanged(path, server, held):
    again = call(server, 'PUT', path, held)
    if again != held:
        raise Disagreement(f'a PUT of the same by {NAMES[server]} is a write: ' + '; '.join(diff(held, again))[:600])


def play(base, one, other):
    path, subresources = where(base)
    at = f'{path}/{base["metadata"]["name"]}'
    held = call(one, 'POST', path, base)
    settle(at)
    held = call(one, 'GET', at)
    agree(at, one, held)
    for writer, reader in ((other, one), (one, other)):
        changed = copy.deepcopy(held)
        changed['metadata'].setdefault('labels', {})['turn'] = NAMES[writer]
        held = call(writer, 'PUT', at, changed)
        held = settle(at) or held
        agree(at, writer, held)
        # Twice by the reader: the first may set defaults that depend on what it has read.
        unchanged(at, reader, held)
        for status in hunt.STATUS.get(base['kind'], [])[:1] if 'status' in subresources else []:
            changed = dict(copy.deepcopy(held), status=status)
            code, answer, _ = writer.call('PUT', at + '/status', changed)
            if code == 200:
                held = settle(at) or answer
                agree(at, writer, held)
                unchanged(at + '/status', reader, held)
    other.call('DELETE', at + '?gracePeriodSeconds=0')


def settle(at):
    """Waits until controllers of the two servers have left the object alone; what it is then."""
    last = None
    for _ in range(20):
        code, now, _ = real.call('GET', at)
        if code != 200 or now == last:
            return now if code == 200 else None
        last = now
        time.sleep(.05 if last and last.get('kind') not in SLOW else 1)
    return last


# Controllers write their status a moment after a change.
SLOW = ('APIService', 'CustomResourceDefinition', 'FlowSchema', 'ServiceCIDR', 'Namespace')
NAMES = {real: 'kube-apiserver', ours: 'pintle'}


def main():
    count, bad, skipped = 0, 0, 0
    for base in bases(set(sys.argv[1:])):
        base = copy.deepcopy(base)
        if not base.get('metadata', {}).get('name') or not where(base):
            continue
        base['metadata'].pop('namespace', None)
        for one, other in ((real, ours), (ours, real)):
            path, _ = where(base)
            if real.call('POST', path + '?dryRun=All', base)[0] != 201:
                skipped += 1
                continue
            count += 1
            try:
                play(base, one, other)
            except Disagreement as error:
                bad += 1
                print(f'## {base["apiVersion"]} {base["kind"]} {base["metadata"]["name"]}, made by {NAMES[one]}: {error}')
                sys.stdout.flush()
            hunt.gone(f'{path}/{base["metadata"]["name"]}', real)
    print(f'objects {count} (not valid here {skipped}) disagreements {bad}')
    sys.exit(1 if bad else 0)


if __name__ == '__main__':
    main()
