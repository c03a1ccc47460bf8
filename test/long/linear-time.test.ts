import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { parseQuantityBytes, QuantityError } from '#src/kube/quantity.ts';
import type { VolumeSpec } from '#src/kube/objects.ts';
import { AWS } from '#src/migration/aws.ts';
import { AZURE_DISK } from '#src/migration/azure-disk.ts';
import { AZURE_FILE } from '#src/migration/azure-file.ts';
import { GCE } from '#src/migration/gce.ts';
import { quote } from '#src/rules/quote.ts';
import { RefusedError } from '#src/rules/rule.ts';
import { secretRef } from '#src/volumes/secret-ref.ts';

const parts = { metadata: { name: 'pv', annotations: {} }, spec: {} as VolumeSpec };
const NAME = 'csi.storage.k8s.io/provisioner-secret-name';
const NAMESPACE = 'csi.storage.k8s.io/provisioner-secret-namespace';

function secretOf(name: string, annotation = ''): unknown {
  const annotations = { long: annotation };
  return secretRef(
    'Provisioner',
    { [NAME]: name, [NAMESPACE]: 'ns' },
    { volumeName: 'pv', claim: { name: 'claim', namespace: 'ns', annotations } },
  );
}

/** What users write into claims, classes and volumes, as a part of which a long text can be slow to
 * read. A text of all kinds of parts is read in each of these ways. */
const READERS: Readonly<Record<string, (text: string) => unknown>> = {
  'a secret template': (text) => secretOf(text),
  'an annotation in a secret template': (text) => secretOf("${pvc.annotations['long']}", text),
  'a quantity': (text) => parseQuantityBytes(text),
  'a text in a message': quote,
  'a handle of AWS': (text) => AWS.toHandle({ volumeID: text }, parts),
  'a secret of Azure File': (text) =>
    AZURE_FILE.toHandle({ secretName: text, secretNamespace: 'ns', shareName: 's' }, parts),
  'a handle of Azure Disk': (text) =>
    AZURE_DISK.toInTreeSource({ driver: 'd', volumeHandle: text }),
  'a handle of Compute Engine': (text) => GCE.toInTreeSource({ driver: 'd', volumeHandle: text }),
};

const PIECES = (
  '${ $ { } ${} a 1 1. .1 - . / aws:// a-b. " é azure-storage-account- azure-storage-account-a ' +
  '/subscriptions/'
)
  .split(' ')
  .concat(' ', '\n');

const isExpected = (error: unknown): boolean =>
  error instanceof RefusedError || error instanceof QuantityError;

/** Least CPU time of three runs: other processes take from the time on the wall. */
function timeMs(read: (text: string) => unknown, text: string): number {
  const runs = [1, 2, 3].map(() => {
    const began = process.cpuUsage();
    try {
      read(text);
    } catch (error) {
      if (!isExpected(error)) throw error;
    }
    const { user, system } = process.cpuUsage(began);
    return (user + system) / 1_000;
  });
  return Math.min(...runs);
}

const LONGEST = 64 * 1024;
/** What takes less is fast enough, and too short to tell how it grows. */
const NOISE_MS = 40;

describe('what users write, 64 KiB long', () => {
  for (const [what, read] of Object.entries(READERS))
    it(`is read in linear time as ${what}`, () => {
      for (const piece of PIECES) {
        const text = piece.repeat(Math.floor(LONGEST / 2 / piece.length));
        // Also counts the collection of garbage, so that one good measurement is enough.
        const isLinear = [1, 2, 3].some(
          () => timeMs(read, text + text) <= Math.max(3 * timeMs(read, text), NOISE_MS),
        );
        assert.ok(isLinear, `"${piece}", ${2 * text.length} characters`);
      }
    });
});
