import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { create, toBinary } from '@bufbuild/protobuf';
import {
  CreateVolumeRequestSchema,
  CreateVolumeResponseSchema,
} from '#src/csi/generated/csi_pb.ts';
import { Code } from '#src/csi/status.ts';
import type { DriverCall, Reply } from '#src/driver/driver-calls.ts';
import { logCall } from '#src/driver/log-call.ts';
import { createLogger } from '#src/runtime/log.ts';

const REQUEST = toBinary(
  CreateVolumeRequestSchema,
  create(CreateVolumeRequestSchema, { name: 'v', secrets: { key: 'hunter2hunter2' } }),
);

interface Change {
  readonly path?: string;
  readonly request?: Uint8Array;
  readonly trace?: string;
  readonly code?: number;
  readonly details?: string;
  readonly response?: Uint8Array;
  readonly kind?: 'driver' | 'not-forwarded';
}

function log(change: Change, verbosity = 5, format: 'text' | 'json' = 'json'): string {
  const { code = Code.OK, details = '', kind = 'driver', trace } = change;
  const message = Buffer.from(change.response ?? []);
  const reply: Reply =
    kind === 'driver'
      ? { kind, code, details, message, headers: [], trailers: [] }
      : { kind, reason: 'in-flight', code, details };
  const call: DriverCall = {
    path: change.path ?? '/csi.v1.Controller/CreateVolume',
    message: change.request ?? REQUEST,
    headers: trace === undefined ? {} : { traceparent: trace },
    deadlineMs: Infinity,
    notAfterMs: Infinity,
    migrated: false,
    caller: 'DNS:sutler-jobs',
    signal: new AbortController().signal,
  };
  let text = '';
  const write = (line: string): void => void (text += line);
  logCall(createLogger({ name: 'gateway', verbosity, format, write }), call, reply, 5);
  return text;
}

function fieldsOf(change: Change): Record<string, unknown> {
  return JSON.parse(log(change)) as Record<string, unknown>;
}

describe('logCall', () => {
  it('logs a missing message as null and an empty one as {} (Q-59)', () => {
    assert.equal(fieldsOf({ kind: 'not-forwarded' })['response'], null);
    assert.deepEqual(fieldsOf({ response: new Uint8Array(0) })['response'], {});
    const response = toBinary(
      CreateVolumeResponseSchema,
      create(CreateVolumeResponseSchema, { volume: { volumeId: 'h' } }),
    );
    assert.deepEqual(fieldsOf({ response })['response'], { volume: { volume_id: 'h' } });
  });

  it('cuts long texts of the driver', () => {
    const long = 'x'.repeat(200_000);
    const volume = { volumeId: long, volumeContext: { key: long } };
    const response = toBinary(
      CreateVolumeResponseSchema,
      create(CreateVolumeResponseSchema, { volume }),
    );
    assert.ok(log({ details: long, response }).length < 5_000);
    assert.ok(log({ details: long, response, request: new Uint8Array(0) }).length < 5_000);
  });

  it('logs no secret of the request or of the driver’s text (Q-59)', () => {
    for (const format of ['text', 'json'] as const)
      for (const change of [
        {},
        { details: 'key hunter2hunter2 is wrong' },
        { path: '/vendor.v1.Extra/Do' },
        { path: '/csi.v1.Identity/Probe' },
      ])
        assert.doesNotMatch(log(change, 6, format), /hunter2/);
  });

  it('withholds the driver’s texts if a secret is too short to be struck, or not known', () => {
    const request = toBinary(
      CreateVolumeRequestSchema,
      create(CreateVolumeRequestSchema, { name: 'v', secrets: { pin: '123' } }),
    );
    assert.match(String(fieldsOf({ request, details: 'PIN 123' })['details']), /withheld/);
    const change = { path: '/vendor.v1.Extra/Do', details: 'PIN 123' };
    assert.match(String(fieldsOf(change)['details']), /withheld/);
    const own = { ...change, kind: 'not-forwarded' } as const;
    assert.equal(fieldsOf(own)['details'], 'PIN 123');
  });

  it('logs no byte of a message that it can’t decode', () => {
    const size = REQUEST.length;
    assert.equal(
      fieldsOf({ path: '/vendor.v1.Extra/Do' })['request'],
      `${size} bytes of an unknown message`,
    );
    assert.equal(
      fieldsOf({ request: Buffer.from([0x0a, 0x7f, 0x61]) })['request'],
      '3 bytes that do not decode',
    );
  });

  it('logs the caller, the trace and who made the status', () => {
    const { caller, trace, code, driverSaid, notForwarded } = fieldsOf({
      trace: '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01',
      code: Code.Aborted,
      kind: 'not-forwarded',
    });
    assert.deepEqual(
      { caller, trace, code, driverSaid, notForwarded },
      {
        caller: 'DNS:sutler-jobs',
        trace: '0af7651916cd43dd8448eb211c80319c',
        code: 'Aborted',
        driverSaid: false,
        notForwarded: true,
      },
    );
  });

  it('logs nothing below -v=4', () => assert.equal(log({}, 3), ''));
});
