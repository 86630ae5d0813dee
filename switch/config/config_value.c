/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Checks one value of the configuration against its key's type and range, stores it in its field,
 * and describes the expected values. Called by the configuration's parser only.
 */
#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "control/metrics/metrics.h"
#include "switch/config/config_keys.h"
#include "control/text.h"

static void
store_integer(const struct config_key *key, int64_t value, void *field)
{
	if (key->size == sizeof(uint16_t)) {
		uint16_t narrow = (uint16_t)value;

		memcpy(field, &narrow, sizeof(narrow));
	} else if (key->size == sizeof(uint32_t)) {
		uint32_t narrow = (uint32_t)value;

		memcpy(field, &narrow, sizeof(narrow));
	} else {
		memcpy(field, &value, sizeof(value));
	}
}

static int
read_integer(const struct config_key *key, const json_t *value, void *field)
{
	int64_t number = key->fallback;

	if (value != NULL) {
		if (!json_is_integer(value))
			return -EINVAL;
		number = json_integer_value(value);
		if (number < key->minimum || number > key->maximum)
			return -EINVAL;
	}
	store_integer(key, number, field);
	return 0;
}

static int
read_boolean(const struct config_key *key, const json_t *value, void *field)
{
	bool flag = value == NULL ? key->fallback != 0 : json_is_true(value);

	if (value != NULL && !json_is_boolean(value))
		return -EINVAL;
	memcpy(field, &flag, sizeof(flag));
	return 0;
}

static int
read_share(const json_t *value, void *field)
{
	double share = 0;

	if (value != NULL) {
		if (!json_is_number(value))
			return -EINVAL;
		share = json_number_value(value);
		if (share < 0 || share > 1)
			return -EINVAL;
	}
	memcpy(field, &share, sizeof(share));
	return 0;
}

static int
read_choice(const struct config_key *key, const char *text, void *field)
{
	for (int64_t i = 0; key->choices[i] != NULL; i++) {
		if (strcmp(key->choices[i], text) == 0) {
			store_integer(key, i, field);
			return 0;
		}
	}
	return -EINVAL;
}

static int
read_mac(const char *text, void *field)
{
	uint8_t mac[6];
	unsigned int any = 0;

	if (strlen(text) != 17)
		return -EINVAL;
	for (unsigned int i = 0; i < 6; i++) {
		const char *byte = text + 3 * i;

		if (!isxdigit((unsigned char)byte[0]) || !isxdigit((unsigned char)byte[1]))
			return -EINVAL;
		if (byte[2] != (i < 5 ? ':' : '\0'))
			return -EINVAL;
		sscanf(byte, "%2hhx", &mac[i]);
		any |= mac[i];
	}
	if (any == 0 || (mac[0] & 1) != 0)
		return -EINVAL;
	memcpy(field, mac, sizeof(mac));
	return 0;
}

/* Parses "10.77.1.0/24"; "0.0.0.0/0" is all addresses. */
static int
read_prefix(const char *text, void *field)
{
	const char *slash = strchr(text, '/');
	struct config_prefix prefix;
	char address[INET_ADDRSTRLEN];
	size_t digits;
	unsigned long len;

	if (slash == NULL || (size_t)(slash - text) >= sizeof(address))
		return -EINVAL;
	snprintf(address, sizeof(address), "%.*s", (int)(slash - text), text);
	if (inet_pton(AF_INET, address, &prefix.ip_be) != 1)
		return -EINVAL;
	digits = strspn(slash + 1, "0123456789");
	if (digits == 0 || digits > 2 || slash[1 + digits] != '\0')
		return -EINVAL;
	len = strtoul(slash + 1, NULL, 10);
	if (len > 32 || (uint32_t)((uint64_t)ntohl(prefix.ip_be) << len) != 0)
		return -EINVAL;
	prefix.len = (uint8_t)len;
	memcpy(field, &prefix, sizeof(prefix));
	return 0;
}

static bool
is_path(const char *text)
{
	if (text[0] != '/')
		return false;
	for (; *text != '\0'; text++) {
		if (!isgraph((unsigned char)*text) || strchr(",=[]\"", *text) != NULL)
			return false;
	}
	return true;
}

/* True for a name that the kernel accepts, and that can be among a device's arguments. */
static bool
is_interface(const char *text)
{
	if (strlen(text) >= IF_NAMESIZE)
		return false;
	for (const char *c = text; *c != '\0'; c++) {
		if (!isgraph((unsigned char)*c) || strchr(",=[]\"/", *c) != NULL)
			return false;
	}
	return true;
}

/*
 * True for a driver's name, optionally with a number, then optionally arguments:
 * net_af_xdp0,iface=fs-h0
 */
static bool
is_vdev(const char *text)
{
	size_t prefix = strlen("net_");
	size_t name;

	if (strncmp(text, "net_", prefix) != 0)
		return false;
	name = strspn(text + prefix, "abcdefghijklmnopqrstuvwxyz_");
	if (name == 0)
		return false;
	name += prefix;
	name += strspn(text + name, "0123456789");
	if (text[name] != '\0' && text[name] != ',')
		return false;
	for (const char *c = text; *c != '\0'; c++) {
		if (!isgraph((unsigned char)*c))
			return false;
	}
	return true;
}

/* True for domain, bus, device and function as lspci -D shows them: 0000:01:00.0 */
static bool
is_pci_address(const char *text)
{
	static const char form[] = "xxxx:xx:xx.7";
	unsigned int device;

	if (strlen(text) != strlen(form))
		return false;
	for (size_t i = 0; form[i] != '\0'; i++) {
		bool right = form[i] == 'x'   ? isxdigit((unsigned char)text[i]) != 0
			     : form[i] == '7' ? text[i] >= '0' && text[i] <= '7'
					      : text[i] == form[i];

		if (!right)
			return false;
	}
	return sscanf(text + 8, "%2x", &device) == 1 && device < 32;
}

static bool
is_endpoint(const char *text)
{
	struct address address;

	return metrics_address(text, &address) == 0;
}

static int
read_text(const struct config_key *key, const char *text, char *field)
{
	size_t len = strlen(text);

	if (len == 0 || len >= key->size)
		return -EINVAL;
	if (key->type == CONFIG_TYPE_NAME && strspn(text, TEXT_NAME_CHARACTERS) != len)
		return -EINVAL;
	if (key->type == CONFIG_TYPE_INTERFACE && !is_interface(text))
		return -EINVAL;
	if (key->type == CONFIG_TYPE_VDEV && !is_vdev(text))
		return -EINVAL;
	if (key->type == CONFIG_TYPE_PATH && !is_path(text))
		return -EINVAL;
	if (key->type == CONFIG_TYPE_ENDPOINT && !is_endpoint(text))
		return -EINVAL;
	if (key->type == CONFIG_TYPE_PCI && !is_pci_address(text))
		return -EINVAL;
	memcpy(field, text, len + 1);
	return 0;
}

static int
read_string(const struct config_key *key, const json_t *value, void *field)
{
	const char *text = value == NULL ? key->fallback_text : json_string_value(value);
	uint32_t ip_be;

	if (value == NULL && key->type == CONFIG_TYPE_CHOICE)
		text = key->choices[key->fallback];
	if (text == NULL)
		return value == NULL ? 0 : -EINVAL;
	switch (key->type) {
	case CONFIG_TYPE_CHOICE:
		return read_choice(key, text, field);
	case CONFIG_TYPE_MAC:
		return read_mac(text, field);
	case CONFIG_TYPE_PREFIX:
		return read_prefix(text, field);
	case CONFIG_TYPE_IPV4:
		if (text_unicast_ipv4(text, &ip_be) != 0)
			return -EINVAL;
		memcpy(field, &ip_be, sizeof(ip_be));
		return 0;
	default:
		return read_text(key, text, field);
	}
}

int
config_value_store(const struct config_key *key, const json_t *value, void *fields)
{
	void *field = (char *)fields + key->offset;

	switch (key->type) {
	case CONFIG_TYPE_INTEGER:
		return read_integer(key, value, field);
	case CONFIG_TYPE_BOOLEAN:
		return read_boolean(key, value, field);
	case CONFIG_TYPE_SHARE:
		return read_share(value, field);
	default:
		return read_string(key, value, field);
	}
}

static void
expected_choices(const struct config_key *key, char *buffer)
{
	size_t used = 0;

	for (size_t i = 0; key->choices[i] != NULL && used < CONFIG_EXPECTED_LEN; i++) {
		const char *joint = i == 0 ? "" : key->choices[i + 1] == NULL ? " or " : ", ";

		used += (size_t)snprintf(buffer + used, CONFIG_EXPECTED_LEN - used, "%s\"%s\"",
					 joint, key->choices[i]);
	}
}

const char *
config_value_expected(const struct config_key *key, char *buffer)
{
	const size_t size = CONFIG_EXPECTED_LEN;

	switch (key->type) {
	case CONFIG_TYPE_INTEGER:
		snprintf(buffer, size, "an integer from %" PRId64 " to %" PRId64, key->minimum,
			 key->maximum);
		break;
	case CONFIG_TYPE_BOOLEAN:
		snprintf(buffer, size, "true or false");
		break;
	case CONFIG_TYPE_SHARE:
		snprintf(buffer, size, "a number from 0 to 1");
		break;
	case CONFIG_TYPE_NAME:
		snprintf(buffer, size, "1 to %zu letters, digits, '.', '_' or '-'", key->size - 1);
		break;
	case CONFIG_TYPE_TEXT:
		snprintf(buffer, size, "a string of 1 to %zu bytes", key->size - 1);
		break;
	case CONFIG_TYPE_PATH:
		snprintf(
			buffer, size,
			"an absolute path of at most %zu bytes without spaces and any of , = [ ] \"",
			key->size - 1);
		break;
	case CONFIG_TYPE_CHOICE:
		expected_choices(key, buffer);
		break;
	case CONFIG_TYPE_IPV4:
		snprintf(buffer, size, "a unicast IPv4 address like \"10.77.0.254\"");
		break;
	case CONFIG_TYPE_PREFIX:
		snprintf(buffer, size,
			 "an IPv4 prefix like \"10.77.1.0/24\", all bits behind its length zero");
		break;
	case CONFIG_TYPE_MAC:
		snprintf(buffer, size, "a unicast MAC address like \"02:fa:00:00:00:fe\"");
		break;
	case CONFIG_TYPE_ENDPOINT:
		snprintf(buffer, size,
			 "an IP address and a TCP port like \"127.0.0.1:9464\" or \"[::1]:9464\"");
		break;
	case CONFIG_TYPE_INTERFACE:
		snprintf(buffer, size, "the name of a network interface like \"eth1\"");
		break;
	case CONFIG_TYPE_VDEV:
		snprintf(
			buffer, size,
			"a DPDK virtual device of at most %zu bytes like \"net_af_xdp,iface=eth1\"",
			key->size - 1);
		break;
	case CONFIG_TYPE_PCI:
		snprintf(buffer, size, "a PCI address like \"0000:01:00.0\"");
		break;
	case CONFIG_TYPE_OBJECT:
		snprintf(buffer, size, "an object");
		break;
	case CONFIG_TYPE_ARRAY:
		snprintf(buffer, size, "an array of %" PRId64 " to %" PRId64 " objects",
			 key->minimum, key->maximum);
		break;
	}
	return buffer;
}
