import assert from 'node:assert/strict';
import { constants } from 'node:http2';
import { after, before, beforeEach, describe, it } from 'node:test';
import { create, toBinary } from '@bufbuild/protobuf';
import { CsiClient } from '#src/gateway-client/client.ts';
import { CreateVolumeResponseSchema } from '#src/csi/generated/csi_pb.ts';
import { makeFolder } from '../harness/csi-folder.ts';
import { startTestGateway } from '../harness/csi-gateway.ts';
import {
  answerBytes,
  answerOk,
  answerTrailersOnly,
  type RawCall,
  type RawDriver,
  startRawDriver,
} from '../harness/csi-raw-driver.ts';
import { openRig, type Rig } from '../jobs/rig.ts';
import { until } from '../harness/until.ts';

const MADE = toBinary(
  CreateVolumeResponseSchema,
  create(CreateVolumeResponseSchema, { volume: { volumeId: 'made', capacityBytes: 1_048_576n } }),
);

/** How a call can end without an answer of the driver. `code` is the status that the client makes
 * of it without a gateway. */
const MADE_UP: readonly {
  readonly title: string;
  readonly end: (call: RawCall) => unknown;
  readonly code: string;
}[] = [
  {
    title: 'RST_STREAM INTERNAL_ERROR',
    end: ({ stream }) => stream.close(constants.NGHTTP2_INTERNAL_ERROR),
    code: 'Unavailable',
  },
  {
    title: 'a proxy’s 403',
    end: (call) => answerTrailersOnly(call, { ':status': 403 }),
    code: 'Unknown',
  },
  { title: 'a lost connection', end: ({ cut }) => cut(), code: 'Unavailable' },
  {
    title: 'an answer that can’t be decoded',
    end: (call) => answerOk(call, Buffer.from([0x0a, 0xff])),
    code: 'Internal',
  },
  {
    title: 'half an answer',
    end: (call) => answerBytes(call, Buffer.from([0, 0, 0, 0, 9, 1]), { 'grpc-status': '0' }),
    code: 'Internal',
  },
];

describe('a call that ends without an answer of the driver', () => {
  let rig: Rig;
  let folder: Awaited<ReturnType<typeof makeFolder>>;
  let raw: RawDriver;
  let gateway: Awaited<ReturnType<typeof startTestGateway>>;
  let direct: CsiClient;
  let script: (call: RawCall) => unknown = () => false;
  before(async () => {
    rig = await openRig();
    folder = await makeFolder();
    raw = await startRawDriver(folder.file('csi.sock'), (call) =>
      call.path.endsWith('/CreateVolume') ? script(call) : false,
    );
    gateway = await startTestGateway(folder);
    direct = new CsiClient({
      address: { kind: 'unix', path: folder.file('csi.sock') },
    });
  });
  after(async () => {
    direct.close();
    await gateway.close();
    await raw.close();
    await folder.remove();
    await rig.close();
  });
  beforeEach(async () => {
    await rig.reset();
    await until(() => gateway.gateway.trouble === undefined, 'the driver is ready');
  });

  for (const [way, client] of [
    ['through the gateway', () => gateway.client],
    ['without a gateway', () => direct],
  ] as const) {
    for (const { title, end, code } of MADE_UP) {
      it(`(${title}, ${way}) is in doubt, and is repeated byte for byte`, async () => {
        const claim = await rig.claim({ parameters: { type: 'first' } });
        const csi = client();
        const bodies: Buffer[] = [];
        script = (call) => (bodies.push(call.body), end(call));
        const outcome = await rig.provision(claim, { csi });
        assert.ok(outcome.kind === 'retry' || outcome.kind === 'running', JSON.stringify(outcome));
        assert.ok(((await rig.doubtMs(claim)) ?? 0) > 0);
        if (way === 'without a gateway') assert.ok(outcome.reason.includes(`code = ${code} `));
        script = (call) => (bodies.push(call.body), answerOk(call, MADE));
        await until(async () => {
          await rig.provision(claim, { csi });
          return (await rig.volumeOf(claim)) !== undefined;
        }, 'its PV is written');
        assert.ok(
          bodies.length >= 2 && bodies.every((body) => body.equals(bodies[0] ?? Buffer.alloc(0))),
        );
        assert.equal((await rig.volumeOf(claim))?.spec.csi?.volumeHandle, 'made');
      });
    }
  }
});
