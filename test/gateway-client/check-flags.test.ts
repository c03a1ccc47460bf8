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
const INSECURE = '--gateway-insecure';
const BOTH = ['--gateway-service=a/b', INSECURE, '--gateway=unix:///a'];

describe('checkGatewayFlags', () => {
  for (const argv of [
    ['--gateway-service=a/b', INSECURE],
    ['--gateway=unix:///run/gw.sock'],
    ...['127.0.0.1', '[::1]', 'localhost'].map((host) => [`--gateway=dns:///${host}:9808`]),
  ])
    it(`accepts ${argv.join(' ')}`, () => check(...argv));

  for (const [argv, message] of [
    [BOTH, /--gateway and --gateway-service: give one of them/],
    [['--gateway-service=a/b'], /need TLS; give --gateway-tls-ca/],
    [['--gateway='], /the address of a gateway is missing/],
  ] as const)
    it(`refuses ${argv.join(' ')}`, () => assert.throws(() => check(...argv), message));

  for (const host of ['10.0.0.7', 'sutler-gateway.sutler.svc', '[2001:db8::1]'])
    it(`refuses ${host} without --gateway-insecure`, () => {
      const address = `--gateway=dns:///${host}:9808`;
      assert.throws(() => check(address), /beyond loopback, which needs TLS/);
      check(address, INSECURE);
    });
});
