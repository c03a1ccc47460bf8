import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { checkGatewayFlags } from '#src/gateway-client/open-driver.ts';
import { gatewayClientFlags } from '#src/gateway-client/flags.ts';
import { parseFlags } from '#src/runtime/parse-flags.ts';

function check(...argv: readonly string[]): void {
  const parsed = parseFlags(gatewayClientFlags, { argv, env: {} });
  assert.ok(parsed.kind === 'run');
  checkGatewayFlags(parsed.flags);
}

describe('checkGatewayFlags', () => {
  it('accepts a Service in place of addresses', () =>
    check('--gateway-service=a/b', '--gateway-insecure'));
  it('refuses a Service beside addresses', () =>
    assert.throws(
      () => check('--gateway-service=a/b', '--gateway-insecure', '--gateway=unix:///a'),
      /--gateway and --gateway-service: give one of them/,
    ));
  it('refuses a Service without TLS', () =>
    assert.throws(() => check('--gateway-service=a/b'), /need TLS; give --gateway-tls-ca/));
  it('refuses an empty list', () =>
    assert.throws(() => check('--gateway='), /the address of a gateway is missing/));
  for (const address of [
    'unix:///run/gw.sock',
    'dns:///127.0.0.1:9808',
    'dns:///[::1]:9808',
    'dns:///localhost:9808',
  ])
    it(`accepts ${address}`, () => check(`--gateway=${address}`));
  for (const address of [
    'dns:///10.0.0.7:9808',
    'dns:///sutler-gateway.sutler.svc:9808',
    'dns:///[2001:db8::1]:9808',
  ])
    it(`refuses ${address} without --gateway-insecure`, () => {
      assert.throws(() => check(`--gateway=${address}`), /beyond loopback, which needs TLS/);
      check(`--gateway=${address}`, '--gateway-insecure');
    });
});
