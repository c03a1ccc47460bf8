import assert from 'node:assert/strict';
import { readFile, writeFile } from 'node:fs/promises';
import { createSecureContext } from 'node:tls';
import { after, before, describe, it } from 'node:test';
import { makeCertificates, tlsFilesOf, watchOwner } from '../harness/csi-certificates.ts';
import { makeFolder } from '../harness/csi-folder.ts';
import { until } from '../harness/until.ts';

const BROKEN_INTERMEDIATE = '-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n';

describe('watched TLS files', () => {
  let folder: Awaited<ReturnType<typeof makeFolder>>;
  before(async () => {
    folder = await makeFolder();
    await makeCertificates(folder.file('tls'));
  });
  after(() => folder.remove());

  it('that OpenSSL refuses are reported, and the next valid ones are used', async () => {
    const { cert } = tlsFilesOf(folder.file('tls'), 'jobs');
    const good = await readFile(cert, 'utf8');
    const watched = await watchOwner(folder.file('tls'), 'jobs');
    // As everybody does who uses them.
    watched.onChange((next) => createSecureContext({ ...next }));
    await writeFile(cert, good + BROKEN_INTERMEDIATE);
    await until(() => watched.trouble !== undefined, 'there is trouble');
    assert.match(watched.trouble ?? '', /^--cert \S+jobs\.crt: TLS can't use it: /);
    assert.equal(watched.current.cert, good);
    await writeFile(cert, `${good}\n`);
    await until(() => watched.trouble === undefined, 'the trouble is over');
    assert.equal(watched.current.cert, `${good}\n`);
    watched.close();
  });
});
