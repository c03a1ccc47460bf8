import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { inspect } from 'node:util';
import { CsiClient, type CsiClientOptions } from '#src/gateway-client/client.ts';
import { Code, type CsiError } from '#src/csi/status.ts';
import { WITHHELD } from '#src/csi/redact-secrets.ts';
import { STRIPPED } from '#src/runtime/loggable.ts';
import { DriverStatus } from '../../sandbox/driver/driver-status.ts';
import {
  type DriverCall,
  type SampleDriver,
  startSampleDriver,
} from '../../sandbox/driver/server.ts';
import { makeFolder } from '../harness/csi-folder.ts';
import { failureOf, volumeRequest } from '../harness/csi-gateway.ts';

const SECRET = 'hunter2hunter2';
const IN_BASE64 = Buffer.from(`admin:${SECRET}`).toString('base64');

describe('an error of CsiClient', () => {
  let folder: Awaited<ReturnType<typeof makeFolder>>;
  let driver: SampleDriver;
  let hook: (call: DriverCall) => unknown = () => undefined;

  before(async () => {
    folder = await makeFolder();
    driver = await startSampleDriver({
      socket: folder.file('csi.sock'),
      dataDir: folder.file('data'),
      onCall: (call) => hook(call),
    });
  });
  after(async () => {
    await driver.close();
    await folder.remove();
  });

  /** Has the driver refuse a CreateVolume with these secrets. */
  async function failWith(
    said: string,
    secrets: Readonly<Record<string, string>>,
    options: Partial<CsiClientOptions> = {},
  ): Promise<CsiError> {
    hook = () => {
      throw new DriverStatus(Code.ResourceExhausted, said);
    };
    const address = { kind: 'unix', path: folder.file('csi.sock') } as const;
    const client = new CsiClient({ address, ...options });
    try {
      const request = { ...volumeRequest('refused'), secrets };
      return await failureOf(client.createVolume(request, { timeoutMs: 30_000 }));
    } finally {
      client.close();
    }
  }

  it('shows no secret of the request, in no form and no field', async () => {
    const error = await failWith(`Authorization: Basic ${IN_BASE64}: ${SECRET}`, { key: SECRET });
    assert.equal(error.message.split('desc = ')[1], error.details);
    const shown = inspect(error, { depth: 9, showHidden: true });
    assert.ok(!shown.includes(SECRET) && !shown.includes(IN_BASE64.slice(8, -4)), shown);
    assert.ok(error.details.endsWith(STRIPPED), error.details);
  });

  it('is cut after 800 characters, says how long it was, and shows no part of a secret', async () => {
    const said = `${'x'.repeat(795)}${SECRET}${'y'.repeat(5_000)}`;
    const { details } = await failWith(said, { key: SECRET });
    const length = said.length - SECRET.length + STRIPPED.length;
    assert.equal(details, `${'x'.repeat(795)}${STRIPPED.slice(0, 5)}… (${length} characters)`);
    assert.equal((await failWith('z'.repeat(800), {})).details, 'z'.repeat(800));
  });

  it('withholds the driver’s words, not the code, if a value is too short to be struck', async () => {
    for (const pin of ['123', '123\n', ' "123" ']) {
      const error = await failWith('PIN 123 is wrong', { pin });
      assert.equal(error.details, WITHHELD.short);
      assert.equal(error.codeName, 'ResourceExhausted');
      assert.ok(!inspect(error, { depth: 9, showHidden: true }).includes('PIN 123'));
    }
    assert.match(WITHHELD.short, /shorter than 4 characters.*--show-messages-with-short-secrets/);
    assert.equal((await failWith('PIN 123', { pin: '' })).details, 'PIN 123');
  });

  it('shows them if the flag allows it', async () => {
    const secrets = { pin: '123', key: SECRET };
    const error = await failWith(`PIN 123, ${SECRET}`, secrets, { showsShortSecrets: true });
    assert.equal(error.details, `PIN 123, ${STRIPPED}`);
  });

  it('shows what sutler itself says, whatever the length of the values', async () => {
    const address = { kind: 'unix', path: folder.file('nobody.sock') } as const;
    const client = new CsiClient({ address });
    const request = { ...volumeRequest('late'), secrets: { pin: '123' } };
    const error = await failureOf(client.createVolume(request, { timeoutMs: 50 }));
    client.close();
    assert.ok(error.notForwarded);
    assert.notEqual(error.details, WITHHELD.short);
  });
});
